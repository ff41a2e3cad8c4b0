/**
 * `npm run deploy:lint`: checks the manifests of deploy/ without running them.
 *
 *     yamllint                  the style of all files                           Debian: yamllint
 *     docker-compose config     the compose file against Compose's own schema    Debian: docker-compose
 *     kubernetes-models         each object against the schema of its kind       npm, installed in tools/deploy
 *     promtool                  the configuration of Prometheus, and the rules   Debian: prometheus
 *
 * A tool that is missing is a failure: what was not checked is not green.
 */
import { spawnSync } from 'node:child_process'
import { areInstalled, install } from '../dependencies.ts'
import { fetchPromtool, findPromtool } from '../promtool.ts'
import { deployFolder, kubernetesFiles, manifest } from './manifests.ts'
import { prometheusFault } from './prometheusConfig.ts'

interface KubernetesObject {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string }
}

function program(name: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): string | undefined {
  const { status, stdout, stderr, error } = spawnSync(name, args, {
    cwd: deployFolder,
    env: { ...process.env, ...env },
    encoding: 'utf8',
  })
  if (error !== undefined) return `${name} could not be run: ${error.message}. On Debian: apt-get install ${name}`
  return status === 0 ? undefined : stdout + stderr
}

/** What is wrong with each object, and how many there are. */
async function kubernetesFaults(): Promise<{ readonly faults: string[]; readonly objects: number }> {
  if (!areInstalled(import.meta.dirname)) install(import.meta.dirname)
  const { parseAllDocuments } = (await load('yaml')) as {
    readonly parseAllDocuments: (text: string) => { toJS(): KubernetesObject }[]
  }
  const found = kubernetesFiles().flatMap((file) =>
    parseAllDocuments(manifest(file)).map((document) => ({ file, object: document.toJS() })),
  )
  const faults: string[] = []
  for (const { file, object } of found) {
    try {
      await validate(object)
    } catch (error) {
      faults.push(`${file}, ${object.kind} ${object.metadata.name}: ${(error as Error).message}`)
    }
  }
  return { faults, objects: found.length }
}

async function validate(object: KubernetesObject): Promise<void> {
  const kinds = (await load(`kubernetes-models/${object.apiVersion}`)) as Record<
    string,
    new (data: object) => { validate(): void }
  >
  const Kind = kinds[object.kind]
  if (Kind === undefined) throw new Error(`There is no ${object.kind} in ${object.apiVersion}.`)
  new Kind(object).validate()
}

/** By a name that the compiler does not follow: it is installed when this runs. */
function load(name: string): Promise<unknown> {
  return import(name)
}

const secrets = { POSTGRES_PASSWORD: 'x', DESK_TOKEN: 'x', CONSOLE_TOKEN: 'x' }
const withoutPromtool = fetchPromtool()
const promtool = findPromtool()
const { faults, objects } = await kubernetesFaults()
const checks: readonly (readonly [string, string | undefined])[] = [
  ['yamllint', program('yamllint', ['--strict', '.'])],
  ['docker-compose config', program('docker-compose', ['-f', 'compose.yaml', 'config', '--quiet'], secrets)],
  [
    'docker-compose config with Kafka',
    program('docker-compose', ['-f', 'compose.yaml', '-f', 'kafka.compose.yaml', 'config', '--quiet'], secrets),
  ],
  [`kubernetes-models, ${objects} objects`, faults.length === 0 ? undefined : faults.join('\n')],
  ['promtool check config', promtool === undefined ? withoutPromtool : prometheusFault(promtool)],
]
for (const [name, fault] of checks) console.log(fault === undefined ? `ok    ${name}` : `FAIL  ${name}\n${fault}`)
process.exitCode = checks.every(([, fault]) => fault === undefined) ? 0 : 1
