import { writeGenerated } from './writeGenerated.ts'

await writeGenerated()
