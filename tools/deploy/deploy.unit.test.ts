import { expect, test } from 'vitest'
import { parseOptions } from '../../desk/options.ts'
import { findPromtool } from '../promtool.ts'
import { deskArguments, kubernetesFiles, manifest } from './manifests.ts'
import { prometheusFault } from './prometheusConfig.ts'

const files = ['compose.yaml', 'kafka.compose.yaml', ...kubernetesFiles()]
// As Compose and Kubernetes fill it in.
const withToken = (args: readonly string[]): string[] =>
  args.map((each) => each.replace(/^\$(?:\{DESK_TOKEN.*\}|\(DESK_TOKEN\))$/, '0123456789abcdef'))

test('the desk understands the arguments of the manifests, and some of them leave dispatching to the others', () => {
  const parsed = files
    .flatMap((file) => deskArguments(manifest(file)))
    .map((args) => parseOptions(withToken(args), { DATABASE_URL: 'postgres://x' }))
  expect(parsed).toHaveLength(5)
  for (const each of parsed) expect(each).toMatchObject({ host: '0.0.0.0', port: 4800, token: '0123456789abcdef' })
  expect(parsed.filter((each) => each !== 'help' && each.background)).toHaveLength(3)
})

test('no manifest has a secret in it', () => {
  for (const file of files) expect(manifest(file)).not.toMatch(/(?:PASSWORD|TOKEN): [^$]|stringData/)
})

test('keeps the files with secrets out of the image', () => {
  const lines = (name: string): string[] => manifest(`../${name}`).split('\n')
  const secrets = lines('.gitignore').filter((line) => line.startsWith('deploy/'))
  expect(secrets).toEqual(['deploy/.env', 'deploy/desk-token'])
  expect(lines('.dockerignore')).toEqual(expect.arrayContaining(secrets))
})

const promtool = findPromtool()
test.skipIf(promtool === undefined)('promtool accepts the configuration of Prometheus with our rules', () => {
  expect(prometheusFault(promtool as string)).toBeUndefined()
})
