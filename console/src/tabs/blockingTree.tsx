import type { JSX } from 'preact'
import type { BlockingBranch } from 'pg-lockstep/console'
import { Lasting } from '../since.tsx'
import { count, number } from '../wording.ts'

/** Of one that blocks many, the first tell enough. */
const SHOWN = 20
/** What is deeper is a click away. */
const OPEN_DEPTH = 4

function blocked(branches: readonly BlockingBranch[]): number {
  return branches.reduce((sum, branch) => sum + 1 + blocked(branch.blocks), 0)
}

/** Who waits for whom: each session under the one that is in its way. */
export function BlockingTree({
  tree,
  atMs,
}: {
  readonly tree: readonly BlockingBranch[]
  readonly atMs: number
}): JSX.Element {
  const waiting = tree.reduce((sum, branch) => sum + blocked(branch.blocks), 0)
  return (
    <section class="card tree" aria-labelledby="tree">
      <h2 id="tree">Who waits for whom</h2>
      {tree.length === 0 ? (
        <p class="calm">No session waits.</p>
      ) : (
        <>
          <p class="hint">
            {waiting === 1 ? '1 session waits' : `${number(waiting)} sessions wait`}, because of{' '}
            {count(tree.length, 'session')} at the top.
          </p>
          <Branches branches={tree} depth={0} atMs={atMs} />
        </>
      )}
    </section>
  )
}

function Branches(properties: {
  readonly branches: readonly BlockingBranch[]
  readonly depth: number
  readonly atMs: number
}): JSX.Element {
  const { branches, depth, atMs } = properties
  return (
    <ul>
      {branches.slice(0, SHOWN).map((branch) => (
        <li key={branch.pid}>
          {branch.blocks.length === 0 ? (
            <span class="leaf">
              <Words branch={branch} atMs={atMs} />
            </span>
          ) : (
            <details open={depth < OPEN_DEPTH}>
              <summary>
                <Words branch={branch} atMs={atMs} />
              </summary>
              <Branches branches={branch.blocks} depth={depth + 1} atMs={atMs} />
            </details>
          )}
        </li>
      ))}
      {branches.length > SHOWN && <li class="hint">and {number(branches.length - SHOWN)} more</li>}
    </ul>
  )
}

function Words({ branch, atMs }: { readonly branch: BlockingBranch; readonly atMs: number }): JSX.Element {
  const { pid, application, state, waitsFor, waitedMs, blocks } = branch
  return (
    <>
      <b>{application ?? 'unnamed'}</b> ({pid}){state !== null && <span class="hint"> {state}</span>}
      {waitsFor !== null && (
        <>
          {' '}
          waits at <code>{waitsFor}</code>
          {waitedMs !== null && (
            <>
              {' '}
              for <Lasting ms={waitedMs} atMs={atMs} />
            </>
          )}
        </>
      )}
      {blocks.length > 0 && <span class="pill note">blocks {number(blocked(blocks))}</span>}
    </>
  )
}
