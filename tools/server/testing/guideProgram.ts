import { readFileSync } from 'node:fs'

/** The text of a program, and whether a guide shows it as it is: what is read there is what the tests run. */
export function guideShows(guide: string, program: string): boolean {
  const read = (file: string): string => readFileSync(new URL(`../../../${file}`, import.meta.url), 'utf8')
  return read(guide).includes(`\`\`\`ts\n${read(program)}\`\`\``)
}
