/**
 * Observe: what Lockstep does, published on `node:diagnostics_channel`.
 *
 * Every event has its own channel, `lockstep:<name>`. Publishing is synchronous and costs one property read while no subscriber
 * listens: the message is built only after `hasSubscribers` said yes. A listener that throws does not reach the caller of the
 * library: Node reports it as an uncaught exception, as for every diagnostics channel. Listeners must be quick; they run inside
 * the transaction that publishes the event.
 *
 * This module depends on no other, so every module can report through it. The table of events is in docs/reference/observe.md.
 */
export * from './events.ts'
