/** One line that says how far a long command is; on a terminal it is rewritten in place. Goes to stderr, never into the result. */
export function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001B[2K${text}`)
  else process.stderr.write(`${text}\n`)
}

export function endProgress(): void {
  if (process.stderr.isTTY) process.stderr.write('\r\u001B[2K')
}
