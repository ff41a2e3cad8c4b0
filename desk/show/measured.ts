import type { CardText } from '../../proofs/show/state.ts'
import { page, text } from '../http/page.ts'

/** What the start page shows, and how it is known. */
export function measuredPage(texts: readonly CardText[]): string {
  const rows = texts.flatMap(({ title, checkers }) =>
    checkers.map(
      ({ name, promise }) => `<tr><td>${text(title)}</td><td>${text(name)}</td><td>${text(promise)}</td></tr>`,
    ),
  )
  return page(
    'How this is measured',
    `<h1>How this is measured</h1>
<p><a href="/">Back to the race</a></p>
<p>Nothing on the start page is played back or made up. Each press runs both forms of a system at the same time, and the same checkers judge both.</p>
<h2>What runs</h2>
<ul>
<li>A PostgreSQL of its own, beside the one of the desk, with <code>deadlock_timeout = 100ms</code> and <code>fsync = off</code>: a crash of the server loses nothing by that, a crash of the machine would. It is there while the page is open, and is removed afterwards.</li>
<li>Three worker processes. Each runs both sides, with ten connections for each side. Two connect directly; the network of <code>w2</code> goes through a proxy that can cut it.</li>
<li>The two forms of the scenarios in <code>proofs/scenarios</code>, which <code>npx pg-lockstep prove</code> plays as well. “Show me the code” reads these files when
the desk starts. It leaves out the lines that report to the checkers (<code>operation.tell</code>).</li>
<li>Hammer starts that many callers on each side. All of them ask at the same moment, again every 125 ms (10 callers), 250 ms (100) or second (1,000). A caller that still waits for its answer
skips a turn. It lasts 8 seconds, longer after a fault, and ends after 40,000 operations of a side in any case.</li>
</ul>
<h2>What the faults are</h2>
<ul>
<li>Kill: <code>kill -9</code> of a worker, half of the time while a transaction has written and not committed. Another process takes its place.</li>
<li>Freeze: SIGSTOP of the worker that holds most, for 5 seconds. Leases live 0.8 seconds.</li>
<li>Cut: all connections of <code>w2</code> are closed, and it can open no other for 2 seconds.</li>
<li>Crash: PostgreSQL is shut down in immediate mode and started again, with recovery.</li>
</ul>
<p>A fault strikes both sides at once. A fault that is pressed while nothing runs starts 100 callers first.</p>
<h2>What counts as a violation</h2>
<p>Workers record what they asked, were granted, read, wrote and received as answers. A simulated exchange and a simulated broker record what reached them. Checkers compare these
records with each other and with the rows in the database. While a run goes on, those checkers look that can decide before all is quiet. When it is over, operations in flight end,
everything is closed, and all checkers look at everything; that count stays.</p>
<p>An operation that was refused on purpose, or failed by a fault, is no violation. Of an operation without an answer, checkers believe either outcome.</p>
<table><thead><tr><th>system</th><th>checker</th><th>promise</th></tr></thead><tbody>
${rows.join('\n')}
</tbody></table>
<p>After each run of Lockstep two more checkers look whether a lock, a lease, a transaction or a connection is left.</p>
<h2>What the figures are</h2>
<ul>
<li>Done: operations that were acknowledged. Per second: of the last two seconds; after the run, of the whole run.</li>
<li>p99: 99 of 100 acknowledged operations took at most so long, from the request to the answer, over the newest 4,096. Time in the queue counts.</li>
<li>Both sides share the machine, the workers and the server. The figures compare the two forms; they are no benchmark of either.</li>
</ul>`,
  )
}
