/** The API reference: one page for each entry point, from the TSDoc comments. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { root } from '../tools/check/repository.ts'
import { withExistingAnchors } from './apiAnchors.ts'
import { withoutSkippedLevels } from './headingLevels.ts'
import type { Section } from './navigation.ts'

const folder = join(root, 'site')

interface Entry {
  /** What a program imports: `pg-lockstep/http`. */
  readonly name: string
  readonly file: string
}

/** The entry points of the package, from its exports map. */
export function entryPoints(): Entry[] {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    readonly exports: Readonly<Record<string, string>>
  }
  return Object.entries(manifest.exports)
    .filter(([name]) => name !== './package.json')
    .map(([name, target]) => ({
      name: `pg-lockstep${name.slice(1)}`,
      file: join(root, target.replace(/^\.\/dist(.*)\.js$/, 'src$1.ts')),
    }))
}

export function apiSection(): Section {
  return {
    text: 'API',
    items: entryPoints().map(({ name }) => ({ text: name, link: `/api/${name}` })),
  }
}

interface TypeDoc {
  readonly Application: {
    bootstrapWithPlugins(options: object): Promise<{
      readonly converter: { on(event: string, listener: (context: ConvertedContext) => void): void }
      readonly logger: { hasErrors(): boolean }
      convert(): Promise<object | undefined>
      generateOutputs(project: object): Promise<void>
    }>
  }
  readonly Converter: { readonly EVENT_RESOLVE_BEGIN: string }
}

interface ConvertedContext {
  readonly project: { readonly children?: { name: string }[] }
}

/** How TypeDoc names a module: `sinks/kafka`, `http`, `index`. */
function typeDocName(file: string): string {
  return relative(join(root, 'src'), file)
    .replace(/\.ts$/, '')
    .replace(/\/index$/, '')
}

export async function writeApiReference(out: string): Promise<void> {
  // By a name that the compiler does not follow: it is installed when this runs.
  const name = join(folder, 'node_modules', 'typedoc', 'dist', 'index.js')
  const { Application, Converter } = (await import(name)) as TypeDoc
  const entries = entryPoints()
  const app = await Application.bootstrapWithPlugins({
    entryPoints: entries.map(({ file }) => file),
    tsconfig: join(folder, 'tsconfig.json'),
    plugin: [join(folder, 'node_modules', 'typedoc-plugin-markdown', 'dist', 'index.js')],
    out,
    // `npm run check` compiles everything; here only the comments matter.
    skipErrorChecking: true,
    excludeInternal: true,
    excludePrivate: true,
    disableSources: true,
    readme: 'none',
    githubPages: false,
    name: 'API',
    router: 'module',
    entryFileName: 'index',
    hidePageHeader: true,
    parametersFormat: 'table',
    interfacePropertiesFormat: 'table',
    classPropertiesFormat: 'table',
    typeAliasPropertiesFormat: 'table',
    logLevel: 'Error',
  })
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const module of project.children ?? []) {
      const found = entries.find(({ file }) => typeDocName(file) === module.name)
      if (found === undefined) throw new Error(`TypeDoc found ${module.name}, which is no entry point.`)
      module.name = found.name
    }
  })
  const project = await app.convert()
  if (project === undefined || app.logger.hasErrors()) throw new Error('TypeDoc could not read the entry points.')
  await app.generateOutputs(project)
  if (app.logger.hasErrors()) throw new Error('TypeDoc could not write the API reference.')
  const pages = readdirSync(out, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.md'))
    .map((path): [string, string] => [
      path.split(sep).join('/'),
      withoutSkippedLevels(readFileSync(join(out, path), 'utf8')),
    ])
  for (const [path, text] of withExistingAnchors(new Map(pages))) writeFileSync(join(out, path), text)
}
