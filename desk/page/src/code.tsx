import type { JSX } from 'preact'
import type { CardText } from '../../../proofs/show/state.ts'

const TOKENS =
  /(\/\/.*$|\/\*\*.*?\*\/)|(`[^`]*`|'[^'\n]*')|\b(async|await|const|export|for|function|if|of|return|throw|new|undefined)\b|\b(SELECT|INSERT INTO|UPDATE|WHERE|AND|NOT EXISTS|ORDER BY|LIMIT|WITH|FROM|RETURNING|AS|ASC|interval)\b/gm
const KINDS = ['comment', 'string', 'keyword', 'sql']

export function Code({ text }: { text: CardText }): JSX.Element {
  return (
    <div class="codes">
      <Listing title="As it is often written" code={text.code.naive} />
      <Listing title="With Lockstep" code={text.code.lockstep} />
    </div>
  )
}

function Listing({ title, code }: { title: string; code: CardText['code']['naive'] }): JSX.Element {
  return (
    <figure>
      <figcaption>
        <b>{title}</b> <span class="hint">{code.files.join(', ')}</span>
      </figcaption>
      <pre tabIndex={0} aria-label={`Code: ${title}`}>
        <code>{coloured(code.text)}</code>
      </pre>
    </figure>
  )
}

function coloured(code: string): (string | JSX.Element)[] {
  const parts: (string | JSX.Element)[] = []
  let at = 0
  for (const match of code.matchAll(TOKENS)) {
    const kind = KINDS[match.slice(1).findIndex((part) => part !== undefined)]
    parts.push(code.slice(at, match.index), <span class={kind}>{match[0]}</span>)
    at = match.index + match[0].length
  }
  return [...parts, code.slice(at)]
}
