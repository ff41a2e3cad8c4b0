import type { CardText } from '../../proofs/show/state.ts'
import { page, text } from '../http/page.ts'

/** The page that says how the start page measures what it shows. */
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
<p>The start page plays nothing back. Each press runs both forms of a system at the same time, and the same checkers judge both.</p>
<h2>What runs</h2>
<ul>
<li>A PostgreSQL server of its own, next to the one of the desk, with <code>deadlock_timeout = 100ms</code> and <code>fsync = off</code>. With these settings a crash of
the server loses nothing; a crash of the machine could. The server starts when the page opens and is removed afterwards.</li>
<li>Three worker processes. Each runs both sides, with ten connections for each side. Two workers connect directly. The worker <code>w2</code> connects through a proxy that
can cut its network.</li>
<li>The two forms of the scenarios in <code>proofs/scenarios</code>. <code>npx pg-lockstep prove</code> runs the same files. “Show me the code” reads these files when
the desk starts. It leaves out the lines that report to the checkers (<code>operation.tell</code>).</li>
<li>Hammer starts 10, 100 or 1,000 callers on each side. All of them send a request at the same moment, every 125 ms (10 callers), 250 ms (100) or second (1,000). A caller
that still waits for an answer skips a turn. A run lasts 8 seconds, and longer after a fault. It ends after 40,000 operations of one side at the latest.</li>
</ul>
<h2>What the faults do</h2>
<ul>
<li>Kill: <code>kill -9</code> of a worker, half of the time while a transaction has written and not committed. A new process replaces it.</li>
<li>Freeze: SIGSTOP of the worker that holds the most, for 5 seconds. Leases last 0.8 seconds.</li>
<li>Cut: the proxy closes all connections of <code>w2</code> and refuses new ones for 2 seconds.</li>
<li>Crash: PostgreSQL shuts down in immediate mode and starts again, with recovery.</li>
</ul>
<p>A fault affects both sides at once. If you press a fault while nothing runs, 100 callers start first.</p>
<h2>What counts as a violation</h2>
<p>Workers record what they requested, what they were granted, what they read and wrote, and the answers they received. A simulated exchange and a simulated broker record
what reached them. Checkers compare these records with each other and with the rows in the database.</p>
<p>During a run, only those checkers count that can decide while operations are in flight. After the run, operations in flight finish, everything is closed, and all checkers
judge the whole run. That count is final.</p>
<p>An operation that was refused on purpose, or that failed because of a fault, is not a violation. If an operation got no answer, the checkers accept both outcomes.</p>
<p>The page shows what checkers report in the names of the pictures: “Anna” is the account <code>account 7.0</code> of the run.</p>
<table><thead><tr><th>system</th><th>checker</th><th>promise</th></tr></thead><tbody>
${rows.join('\n')}
</tbody></table>
<p>After each run of Lockstep, two more checkers test whether a lock, a lease, a transaction or a connection is left.</p>
<h2>What the figures mean</h2>
<ul>
<li>Done: acknowledged operations. Per second: over the last two seconds, and after the run over the whole run.</li>
<li>p99: 99 of 100 acknowledged operations took at most this long from the request to the answer, over the newest 4,096. Time in the queue counts.</li>
<li>Both sides share the machine, the workers and the server. The figures compare the two forms. They are not a benchmark of either.</li>
</ul>`,
  )
}
