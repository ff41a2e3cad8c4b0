/**
 * `npm run graph`: draws the imports between the modules of src/ into ARCHITECTURE.md. `npm run check` fails where the drawing is stale.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { cruiseImports } from '../check/imports/cruiseImports.ts'
import { root } from '../check/repository.ts'
import { drawnInto, PAGE } from './drawing.ts'

const page = readFileSync(join(root, PAGE), 'utf8')
const drawn = drawnInto(page, await cruiseImports(root))
if (drawn === undefined) {
  console.error(`${PAGE} has no marks for the import graph.`)
  process.exitCode = 1
} else {
  if (drawn !== page) writeFileSync(join(root, PAGE), drawn)
  console.log(drawn === page ? `${PAGE} is up to date.` : `The import graph in ${PAGE} was drawn again.`)
}
