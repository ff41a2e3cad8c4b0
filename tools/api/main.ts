/** `npm run api`: writes down what every entry point exports, after a build. `npm run check` compares it. */
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from '../check/repository.ts'
import { manifest } from '../check/tarball.ts'
import { apiReports } from './reports.ts'

const folder = join(root, 'api-reports')
mkdirSync(folder, { recursive: true })
const { exports } = await manifest()
const reports = apiReports(root, exports)
for (const file of readdirSync(folder)) if (!reports.some(({ name }) => name === file)) rmSync(join(folder, file))
for (const { name, text } of reports) writeFileSync(join(folder, name), text)
