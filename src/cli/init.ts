import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { codeOf } from '../postgres/index.ts'
import type { Command } from './command.ts'
import { firstFile } from './initFile.ts'
import { type FrameworkName, type Project, readProject } from './initProject.ts'
import type { DriverName } from './loadDriver.ts'

export const initCommand: Command = {
  name: 'init',
  summary: 'Write a first file for the driver, ORM and framework of your project',
  usage: '',
  details: `Reads package.json in the working directory, and writes lockstep.ts or lockstep.js, into src if that folder exists: a
pool, a Lockstep, a transaction under a lock, with your ORM if you use one (Drizzle, Kysely, Knex, Prisma, TypeORM,
MikroORM, Sequelize), and a route for NestJS, Next.js, Hono, Express or Fastify. It overwrites nothing, installs nothing
and connects to no database. It prints the next steps.`,
  examples: [
    { line: 'pg-lockstep init', does: 'for the driver and framework in package.json' },
    { line: 'pg-lockstep init --driver postgres', does: 'with postgres.js' },
  ],
  options: ['driver', 'json'],
  words: [],
  async run({ values }) {
    const { file, driver, orm, framework, language, next } = initialize(process.cwd(), values.driver as DriverName)
    const used = [driver, orm, framework].filter((each) => each !== undefined).join(', ')
    return {
      exitCode: 0,
      json: { ok: true, command: 'init', file, driver, orm: orm ?? null, framework: framework ?? null, language, next },
      text: ({ paint }) =>
        [`${paint('green', file)} is written, for ${used}. Next:`, ...next.map((step) => `  ${step}`)].join('\n'),
    }
  },
}

/** Writes the file, and says what to do next. */
export function initialize(
  folder: string,
  driver: DriverName | undefined,
): Project & { readonly next: readonly string[] } {
  const project = readProject(folder, driver)
  const { file } = project
  try {
    writeFileSync(join(folder, file), firstFile(project), { flag: 'wx' })
  } catch (error) {
    if (codeOf(error) === 'EEXIST') throw new FileExistsError(`${file} exists already: nothing was written.`)
    throw error
  }
  return { ...project, next: nextSteps(project) }
}

/** What would have been written has a name that is taken. */
class FileExistsError extends Error {
  readonly code = 'FILE_EXISTS'
}

const MOUNT: Readonly<Record<FrameworkName, (file: string) => string>> = {
  nest: (file) => `Import its ExampleModule in the module of your application, from ${file}`,
  next: (file) => `Export its POST in a route, such as app/example/route.ts: export { POST } from '…/${file}'`,
  hono: (file) => `Mount its routes: app.route('/', routes), from ${file}`,
  express: (file) => `Mount its routes: app.use(routes), from ${file}`,
  fastify: (file) => `Mount its routes: await app.register(routes), from ${file}`,
}

function nextSteps({ missing, add, file, framework }: Project): string[] {
  const named = (dev: boolean): string => missing.flatMap((each) => (each.dev === dev ? [each.name] : [])).join(' ')
  return [
    ...(named(false) === '' ? [] : [`${add} ${named(false)}`]),
    ...(named(true) === '' ? [] : [`${add} -D ${named(true)}`]),
    'export DATABASE_URL=postgres://user@host:5432/name     # or, for development: npx pg-lockstep dev',
    'npx pg-lockstep migrate',
    'npx pg-lockstep doctor',
    framework === undefined ? `Call its example('a') in your program, from ${file}` : MOUNT[framework](file),
  ]
}
