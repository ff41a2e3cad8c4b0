/**
 * The console: a page that shows locks, leases and the outbox as they are, and lets operators act.
 *
 * **What it trusts.** The database's answers, and who has the token. Without a token it only shows, and only to this machine: the
 * request's name must be `localhost` or a loopback address, so that no page elsewhere whose name was made to lead here is answered; where
 * the listener sees the connection, its address as well; and nothing that shows a sign of a proxy (`Via`, `Forwarded`, `X-Forwarded-*`,
 * `X-Real-IP` and the like, HTTP/1.0). What it cannot see: a proxy on this machine that leaves no sign, a tunnel to this machine, and,
 * through `fetch`, the connection. With any of them it needs a token. Operator mode always does.
 *
 * **What an attacker cannot do.** Read from another site: there is no CORS, and browsers say where a request comes from. Change
 * anything from another site: a POST must come from our own page (`Sec-Fetch-Site`, `Origin`), carry the session's secret in a
 * header, and be JSON. Guess the token: it is compared in constant time, and wrong ones are slowed down by address. Lock others out by
 * guessing: other addresses and holders of a session are not limited. Take the cookie: it is HttpOnly, SameSite=Strict, and names a
 * session, not the token. Look on after a session has ended: its streams end with it. Bring in a script: the policy allows our own files only, and these
 * are served from memory, by a list. Act where it may only look: without `operator` nothing changes and no payload is shown. Use up
 * memory: viewers, sessions, bodies and rows have limits, and a slow reader has the newest of each tab waiting, not a queue.
 *
 * **What it costs.** Nothing without a viewer. However many look, each question is asked once: the overview and the locks once a
 * second, leases and the outbox every two, only for the tabs that are open. One question at a time, so one connection of the
 * pool. Where answers take long, those questions are asked less often: all together they have 1 % of one connection's time (`share`),
 * and each half of that where several are expensive.
 *
 * **Being away.** A question that fails is asked again, with pauses up to 5 s; viewers receive `trouble`, and see the next
 * answer as soon as there is one.
 */
export { type Console, createConsole } from './createConsole.ts'
export type { ConsoleLockstep, ConsoleOptions, ConsoleRole, Identity, KnownPerson, Person } from './consoleOptions.ts'
export type { HistoryFigure, PrometheusSource } from './prometheusHistory.ts'
export type {
  BlockingBranch,
  Claim,
  DatabaseProblem,
  DispatcherRow,
  Done,
  EpochEntry,
  EpochHistory,
  LeaseHistory,
  LeaseHolderRow,
  LeaseRow,
  LeasesSnapshot,
  LockRow,
  GuardList,
  GuardRow,
  GuardSampleRow,
  LocksSnapshot,
  OutboxSnapshot,
  OverviewSnapshot,
  ParkedRow,
  Payload,
  Problem,
  ReleaseLease,
  Session,
  ShardRow,
  SkipEvent,
  Snapshots,
  StreamAction,
  Tab,
  AuditList,
  AuditRow,
  DeadLetterList,
  DeadLetterRow,
  EventList,
  EventRow,
  FoundLease,
  IdempotencyList,
  IdempotencyRow,
  ConsumerList,
  ConsumerRow,
  InboxList,
  InboxRow,
  LeaseSearch,
  ManyPreview,
  ManyRow,
  OnMany,
  RemoveDispatcher,
  ReplayStream,
  RolloutList,
  RolloutRow,
  HistorySample,
  OverviewHistory,
  WaitHistory,
} from './wire.ts'
