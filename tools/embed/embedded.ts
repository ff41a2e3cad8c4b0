import { pageContents } from '../../src/console/pageContents.ts'
import { packageVersion } from '../../src/packageVersion.ts'
import { schemaDigest, sqlFiles } from '../../src/postgres/sqlFiles.ts'

/** A module of the library that reads files in the repository, and contains them in the package. */
export interface EmbeddedModule {
  /** Its path below `src` and `dist`, without extension. */
  readonly path: string
  readonly text: string
}

/** The modules as they are published: the same exports as those of the repository, with what these read now. */
export function embeddedModules(): EmbeddedModule[] {
  return [
    { path: 'postgres/sqlFiles', text: moduleOf({ sqlFiles: sqlFiles(), schemaDigest: schemaDigest() }) },
    { path: 'console/pageContents', text: moduleOf({ pageContents: pageContents() }) },
    { path: 'packageVersion', text: moduleOf({ packageVersion: packageVersion() }) },
  ]
}

/** Exports a function for each value. Every JSON text is also a JavaScript expression. */
function moduleOf(values: Readonly<Record<string, unknown>>): string {
  const functions = Object.entries(values).map(
    ([name, value]) => `const ${name}Value = ${JSON.stringify(value, undefined, 1)}\n\n` + functionOf(name),
  )
  return `// Made by \`npm run build\`.\n\n${functions.join('\n')}`
}

function functionOf(name: string): string {
  return `export function ${name}() {\n  return ${name}Value\n}\n`
}
