/** Breaks a text into lines of at most `columns` characters, between words. A longer word has its own line. */
export function wrap(text: string, columns: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(/\s+/).filter((each) => each !== '')) {
    if (line === '') line = word
    else if (lengthOf(line) + 1 + lengthOf(word) <= columns) line += ` ${word}`
    else {
      lines.push(line)
      line = word
    }
  }
  return line === '' ? lines : [...lines, line]
}

/** In characters as people count them: a color or a second half of a surrogate pair takes no room. */
export function lengthOf(text: string): number {
  // oxlint-disable-next-line no-control-regex -- an escape sequence begins with a control character
  return Array.from(text.replaceAll(/\u001B\[\d+m/g, '')).length
}
