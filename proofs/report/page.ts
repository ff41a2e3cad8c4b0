import { verdictOf } from '../../tools/judge/report.ts'
import { type Form, FORMS } from '../history.ts'
import { escape } from './markup.ts'
import { pageStyle } from './pageStyle.ts'
import { type Caught, type FaultResult, operationsOf, type RunResult, type ScenarioResult, wasTried } from './result.ts'
import { timeline } from './timeline.ts'

/** The report of a run: one file that needs no other and no script. */
export function page(result: RunResult): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escape(`Lockstep race lab, seed ${result.seed}`)}</title>
<style>${pageStyle}</style>
</head>
<body>
<main>
<h1>Lockstep race lab</h1>
${verdict(result)}
${facts(result)}
${pictures(result, 'lockstep')}
${scenarios(result)}
${pictures(result, 'naive')}
${faults(result.faults)}
${goals(result)}
${allViolations(result)}
</main>
</body>
</html>
`
}

function verdict({ scenarios: all, goals: wanted }: RunResult): string {
  const ours = all.filter(({ forms }) => forms.lockstep.violations > 0)
  const tried = all.filter(({ forms }) => wasTried(forms.naive))
  const caught = tried.filter(({ forms }) => forms.naive.violations > 0)
  const isRun = all.some(({ forms }) => wasTried(forms.lockstep))
  const missed = wanted.filter(({ holds }) => !holds).length
  const held =
    ours.length === 0
      ? isRun
        ? '<span class="good">No Lockstep form broke a promise.</span>'
        : 'No Lockstep form was run.'
      : `<span class="bad">Lockstep broke a promise in ${ours.length} of ${all.length} scenarios.</span>`
  const naive = `<span class="caught">${caught.length} of ${tried.length} naive forms were caught.</span>`
  const isOpen = verdictOf(wanted) === 'inconclusive'
  const shortfall = `${missed} of ${wanted.length} goals ${isOpen ? 'were not shown: the run is inconclusive' : 'do not hold'}.`
  const goal = missed === 0 ? '' : ` <span class="${isOpen ? 'caught' : 'bad'}">${shortfall}</span>`
  return `<p class="verdict">${held} ${naive}${goal}</p>`
}

function facts(result: RunResult): string {
  const operations = result.scenarios.flatMap(({ forms }) => FORMS.map((form) => operationsOf(forms[form])))
  const injected = result.faults.reduce((sum, fault) => sum + fault.injected, 0)
  const total = operations.reduce((sum, each) => sum + each, 0)
  const rows: [string, string][] = [
    ['Run', `${number(total)} operations, ${number(injected)} faults, ${number(result.minutes)} min`],
    ['Server', escape(result.server)],
    ['Machine', escape(result.machine)],
    ['Started', escape(result.startedAt)],
    ['Seed', `<code>${escape(String(result.seed))}</code>`],
    ['Again', `<code>${escape(result.replay)}</code>`],
  ]
  const list = rows.map(([name, value]) => `<dt>${name}</dt><dd>${value}</dd>`).join('\n')
  return `<div class="card"><dl class="facts">\n${list}\n</dl>
<p class="muted">The seed chooses who does what and when which fault strikes. What PostgreSQL and the operating system make of it is theirs:
the same seed gives the same schedule, not the same microseconds.</p></div>`
}

function scenarios({ scenarios: all }: RunResult): string {
  const row = ({ title, name, does, forms }: ScenarioResult): string =>
    `<tbody>${FORMS.map((form, index) => {
      const { rounds, done, failed, unknown, violations, first } = forms[form]
      const isOpen = rounds === 0 || (form === 'naive' && !wasTried(forms[form]))
      const head = `<td rowspan="${FORMS.length}"><strong>${escape(title)}</strong><small><code>${escape(name)}</code></small></td>`
      const broken =
        first === undefined
          ? ''
          : `<small><a href="#${anchor(name, form)}">${escape(first.violation.invariant)}</a></small>`
      return `<tr>${index === 0 ? head : ''}<td>${form}<small>${escape(does[form])}</small></td>
${[rounds, done, failed, unknown].map((each) => `<td class="number">${number(each)}</td>`).join('')}
<td class="number"><span class="${isOpen ? 'muted' : lookOf(form, violations)}">${isOpen ? '·' : number(violations)}</span>${broken}</td></tr>`
    }).join('\n')}</tbody>`
  return `<h2>Scenarios</h2>
<div class="card"><table>
<thead><tr><th>scenario</th><th>form</th><th class="number">rounds</th><th class="number">done</th><th class="number">failed</th>
<th class="number">unknown</th><th class="number">violations</th></tr></thead>
${all.map(row).join('\n')}
</table></div>`
}

function lookOf(form: Form, violations: number): string {
  if (form === 'naive') return violations > 0 ? 'caught' : ''
  return violations > 0 ? 'bad' : 'good'
}

/** The first violation of each scenario. Ours, if there are any, stand before everything else. */
function pictures({ scenarios: all }: RunResult, form: Form): string {
  const caught = all.flatMap((scenario) => {
    const { first } = scenario.forms[form]
    return first === undefined ? [] : [figure(scenario, form, first)]
  })
  if (caught.length === 0) return ''
  if (form === 'naive') return `<h2>What the naive forms did</h2>\n${caught.join('\n')}`
  return `<h2 class="bad">Lockstep was caught</h2>\n<div class="card alarm">${caught.join('\n')}</div>`
}

function figure({ name, title, does }: ScenarioResult, form: Form, { violation, round, history }: Caught): string {
  const look = form === 'lockstep' ? ' class="bad"' : ''
  return `<figure id="${anchor(name, form)}">
<figcaption><h3${look}>${escape(title)}, ${form} form, round ${number(round)}</h3>
<p class="muted">${escape(does[form])}</p></figcaption>
<div class="picture">${timeline(history, violation, { id: `picture-${anchor(name, form)}` })}</div>
</figure>`
}

function faults(all: readonly FaultResult[]): string {
  if (all.length === 0) return ''
  const row = ({ fault, does, injected, struck, skipped }: FaultResult): string => {
    const counts =
      skipped === undefined
        ? `<td class="number">${number(injected)}</td><td class="number">${number(struck)}</td>`
        : `<td class="number muted" colspan="2">skipped: ${escape(skipped)}</td>`
    return `<tr><td>${escape(fault)}<small>${escape(does)}</small></td>${counts}</tr>`
  }
  return `<h2>Faults</h2>
<div class="card"><table>
<thead><tr><th>fault</th><th class="number">injected</th><th class="number">operations in flight where it struck</th></tr></thead>
<tbody>
${all.map(row).join('\n')}
</tbody></table></div>`
}

function goals({ goals: all }: RunResult): string {
  if (all.length === 0) return ''
  const failedFirst = all.toSorted((one, other) => Number(one.holds) - Number(other.holds))
  const rows = failedFirst.map(
    ({ name, value, goal, holds, evidence }) => `<tr><td>${escape(name)}</td><td class="number">${number(value)}</td>
<td class="number">${escape(goal)}</td><td class="${holds ? 'good' : evidence === true ? 'caught' : 'bad'}">${holds ? 'holds' : evidence === true ? 'not shown' : 'does not hold'}</td></tr>`,
  )
  return `<h2>Goals</h2>
<div class="card"><table>
<thead><tr><th>goal</th><th class="number">value</th><th class="number">wanted</th><th></th></tr></thead>
<tbody>
${rows.join('\n')}
</tbody></table></div>`
}

function allViolations({ violations, scenarios: all }: RunResult): string {
  if (violations.length === 0) return ''
  const total = all
    .flatMap(({ forms }) => FORMS.map((form) => forms[form].violations))
    .reduce((sum, each) => sum + each, 0)
  const items = violations.map(
    ({ invariant, scenario, form, round, text }) =>
      `<li${form === 'lockstep' ? ' class="bad"' : ''}><strong>${escape(scenario)}, ${form}, round ${number(round)}:</strong> ${escape(invariant)}. ${escape(text)}</li>`,
  )
  const shown =
    violations.length < total
      ? `The first ${number(violations.length)} of ${number(total)} violations`
      : 'All violations'
  return `<h2>Violations</h2>
<div class="card"><details><summary>${shown}</summary>
<ol>
${items.join('\n')}
</ol></details></div>`
}

function anchor(name: string, form: Form): string {
  return `${name.replaceAll(/[^\w-]/g, '-')}-${form}`
}

function number(value: number): string {
  return escape(value.toLocaleString('en-US', { maximumFractionDigits: 2 }))
}
