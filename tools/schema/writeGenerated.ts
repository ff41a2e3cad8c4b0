import { writeFile } from 'node:fs/promises'
import { GENERATED } from './generated.ts'

/** Writes the files of sql/functions that are generated. */
export async function writeGenerated(): Promise<void> {
  for (const [file, text] of Object.entries(GENERATED)) {
    await writeFile(new URL(`../../sql/functions/${file}`, import.meta.url), text)
  }
}
