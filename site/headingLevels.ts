interface Heading {
  readonly asWritten: number
  readonly level: number
}

/** A page whose headings skip no level. TypeDoc writes the members of a type declaration two levels below it. */
export function withoutSkippedLevels(text: string): string {
  const above: Heading[] = []
  let isCode = false
  return text
    .split('\n')
    .map((line) => {
      if (line.startsWith('```')) isCode = !isCode
      const [marks] = /^#{1,6}(?= )/.exec(line) ?? []
      if (isCode || marks === undefined) return line
      while ((above.at(-1)?.asWritten ?? 0) >= marks.length) above.pop()
      const parent = above.at(-1)
      const level = parent === undefined ? marks.length : parent.level + 1
      above.push({ asWritten: marks.length, level })
      return `${'#'.repeat(level)}${line.slice(marks.length)}`
    })
    .join('\n')
}
