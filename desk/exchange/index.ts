/**
 * The exchanges: foreign systems, simulated. There are two, `north` and `south`, with their own orders and positions. One server answers for
 * both, under `/north` and `/south`.
 *
 * It is a small HTTP server with tables of its own (`lockstep_exchange`). The desk reaches it over HTTP alone, as it would a real one:
 * it cannot roll it back, and does not know the outcome of a request whose answer was lost.
 *
 * **What it promises**, as real ones do. An order has a *client order id*: the same id is the same order, however often it is sent,
 * and one that was refused stays refused. Each effect is there whole or not at all. A stop order guards one opening of a position, and is
 * cancelled with it. Closing names the opening. An order can have an end, `validUntil`: one that arrives later is refused, `too-late`,
 * forever; one that was executed before stays executed. So a request after the end learns for certain which of the two it is.
 *
 * **What it does not promise.** That an answer arrives (`lostRate`), that it does anything (`failingRate`), that it is quick (`slowRate`); all
 * three can be set while it runs (`POST /faults`). And that only the desk trades: `POST /manual-trades` is a person at a screen.
 *
 * **Time.** An entry takes 350 ms and a stop-loss 2.4 s; the effect is there a little before the answer. A request that was cut off goes
 * on: a client without an answer must ask again, with the same id.
 */
export type { OpenPosition, Order, OrderKind } from './book.ts'
export { type Faults, NO_FAULTS } from './faults.ts'
export { DEFAULT_EXCHANGE, type ExchangeName, EXCHANGES } from './names.ts'
export { type Exchange, type ExchangeOptions, startExchange, type Timings, TIMINGS } from './server.ts'
