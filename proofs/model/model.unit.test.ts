import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { replay } from '../trace/replay.ts'
import { configurations } from './configurations.ts'
import { traceFromSpin } from './fromSpin.ts'
import { missingForModel, randomRun, search } from './spin.ts'

const LIMITS = { withinMs: 110_000, memoryMb: 1000 }
/** Each of them is found within a second. `npm run model` runs all of them. */
const QUICK = [
  'NUMBER_WITHOUT_LOCK',
  'CURSOR_WITHOUT_FENCE',
  'STREAM_NOT_PARKED',
  'NO_FOR_KEY_SHARE',
  'JUDGED_BY_ANOTHER_CLOCK',
  'LATE_GRANT_COUNTS',
]

const missing = missingForModel()
if (missing !== undefined) {
  if (process.env['CI'] === 'true') throw new Error(`CI=true allows no skipped tests, and the models need ${missing}.`)
  console.error(`SKIPPED: the models need ${missing}.`)
}

const small = configurations.filter(({ scaledDown }) => scaledDown !== undefined)

test.skipIf(missing !== undefined).each(small)(
  'visits every state of $name, scaled down',
  async ({ model, scaledDown = {} }) => {
    const found = await search(model, scaledDown, LIMITS)
    expect(found).toMatchObject({ broken: undefined, complete: true })
    expect(found.states).toBeGreaterThan(1000)
  },
)

const mutants = configurations.flatMap((configuration) =>
  configuration.mutants.filter(({ name }) => QUICK.includes(name)).map((mutant) => ({ ...mutant, configuration })),
)

test.skipIf(missing !== undefined).each(mutants)('finds $name', async ({ name, breaks, configuration, defines }) => {
  const { broken, steps } = await search(
    configuration.model,
    { ...configuration.defines, ...defines, [name]: true },
    LIMITS,
  )
  expect(broken).toBe(breaks)
  // The rules for traces agree.
  if (configuration.replayed === true)
    expect(replay(traceFromSpin(steps)).map(({ invariant }) => invariant)).toContain(breaks)
})

test.skipIf(missing !== undefined)('accepts what the model does as a trace', async () => {
  const [configuration] = configurations
  for (const seed of [1, 2, 3]) {
    const steps = await randomRun(configuration?.model ?? '', configuration?.defines ?? {}, seed, LIMITS.withinMs)
    expect(steps?.at(-1)).toBe('end')
    expect(replay(traceFromSpin(steps ?? []))).toEqual([])
  }
})

test('the page has every configuration and every mutant', () => {
  const page = readFileSync(new URL('../../docs/reference/model.md', import.meta.url), 'utf8')
  for (const { name, mutants: all } of configurations) {
    expect(page).toContain(`| ${name} |`)
    for (const mutant of all) expect(page).toContain(`\`${mutant.name}\``)
  }
})

test('expects a mutant for each property of each protocol', () => {
  const properties = new Set(configurations.flatMap((each) => each.properties))
  const broken = new Set(configurations.flatMap(({ mutants: all }) => all.map(({ breaks }) => breaks)))
  expect([...properties].toSorted()).toEqual([...broken].toSorted())
})
