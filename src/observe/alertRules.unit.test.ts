import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { askedOf, seriesOfLibrary } from '../../tools/promql.ts'
import { findPromtool } from '../../tools/promtool.ts'

const folder = fileURLToPath(new URL('../../docs/operating/', import.meta.url))
const rules = readFileSync(`${folder}alerts.yml`, 'utf8')
const tests = readFileSync(`${folder}alerts-fire.yml`, 'utf8')
const page = readFileSync(`${folder}alerts.md`, 'utf8')

interface Rule {
  readonly alert: string
  /** All that stands in it. */
  readonly text: string
  readonly expression: string
}

// The file is written in one plain form, so that this is enough; promtool reads it as YAML.
const alerts = rules
  .split(/^ {6}- alert: /m)
  .slice(1)
  .map((text): Rule => {
    const expression = /^ {8}expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)/m.exec(text)
    return { alert: text.split('\n')[0] ?? '', text, expression: expression?.[1] ?? expression?.[2] ?? '' }
  })

const series = await seriesOfLibrary()

describe('docs/operating/alerts.yml', () => {
  test('has alerts, each with a unique name, an expression, a severity and a summary', () => {
    expect(alerts.length).toBeGreaterThan(10)
    expect(new Set(alerts.map(({ alert }) => alert)).size).toBe(alerts.length)
    for (const { alert, text, expression } of alerts) {
      expect(alert).toMatch(/^Lockstep[A-Z]\w+$/)
      expect(expression, alert).toContain('lockstep_')
      expect(text, alert).toMatch(/^ {10}severity: (?:info|warning|critical)$/m)
      expect(text, alert).toMatch(/^ {10}summary: '.+'$/m)
    }
  })

  test('queries only metrics and labels that exist', () => {
    for (const { alert, expression } of alerts) {
      const wanted = askedOf(expression)
      expect(wanted.length, alert).toBeGreaterThan(0)
      for (const { name, labels } of wanted) {
        expect([...series.keys()], alert).toContain(name)
        expect(series.get(name), `${alert}: ${name}`).toEqual(expect.arrayContaining([...labels]))
      }
    }
  })

  test('queries only label values that exist', () => {
    const told = ['prometheus.ts', 'prometheusOutbox.ts']
      .map((file) => readFileSync(new URL(file, import.meta.url), 'utf8'))
      .join('')
    const values = [...rules.matchAll(/(?:outcome|reason|state|operation)=~?"([^"]+)"/g)]
    expect(values.length).toBeGreaterThan(4)
    for (const [, value = ''] of values) for (const each of value.split('|')) expect(told).toContain(`'${each}'`)
  })

  test('documents exactly its alerts in alerts.md', () => {
    const headings = [...page.matchAll(/^### (\w+)$/gm)].map(([, heading]) => heading)
    expect(headings).toEqual(alerts.map(({ alert }) => alert))
    for (const { alert, text } of alerts)
      expect(text).toContain(`runbook: docs/operating/alerts.md#${alert.toLowerCase()}\n`)
  })

  test('has a test for each alert that fires it and one that does not, with the series that it queries', () => {
    const cases = tests.split(/^ {2}- name: /m).slice(1)
    for (const { alert, expression } of alerts) {
      const metrics = askedOf(expression).map(({ name }) => name)
      for (const verdict of ['fires', 'stays silent']) {
        const found = cases.filter((each) => each.startsWith(`${alert} ${verdict} `))
        expect(found, `${alert} ${verdict}`).not.toHaveLength(0)
        for (const text of found) {
          const title = text.split('\n', 1)[0]
          const given = [...text.matchAll(/- series: '(\w+)/g)].map(([, name]) => name)
          expect(
            given.some((each) => metrics.includes(each ?? '')),
            title,
          ).toBe(true)
          expect(text.includes(`ALERTS{alertname="${alert}",alertstate="firing"}`), title).toBe(true)
          const expects = text.includes(`labels: '{alertname="${alert}"`)
          expect(expects, title).toBe(verdict === 'fires')
        }
      }
    }
    const named = new Set([...tests.matchAll(/alertname="(\w+)"/g)].map(([, name]) => name))
    expect(named).toEqual(new Set(alerts.map(({ alert }) => alert)))
  })
})

describe('promtool', () => {
  const promtool = findPromtool()
  if (promtool === undefined) {
    if (process.env['CI'] === 'true') throw new Error('There is no promtool, and CI=true allows no skipped tests.')
    console.warn('SKIPPED: promtool is not here. `npx tsx tools/prepare.ts` brings it on Debian.')
  }

  test.skipIf(promtool === undefined).each([
    ['check', 'alerts.yml'],
    ['test', 'alerts-fire.yml'],
  ])('%s rules %s', (verb, file) => {
    const { status, stdout, stderr } = spawnSync(promtool as string, [verb, 'rules', file], {
      cwd: folder,
      encoding: 'utf8',
    })
    expect({ status, said: status === 0 ? '' : stdout + stderr }).toEqual({ status: 0, said: '' })
  })
})
