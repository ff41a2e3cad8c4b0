/** A process of the desk that opens, or closes, one position; the test kills it on the way. */
import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import type { DeskEvents } from '../../desk.ts'
import { DEFAULT_EXCHANGE } from '../../exchange/index.ts'
import { closePosition } from '../close.ts'
import { openPositionContext } from '../positionContext.ts'
import { openPosition } from '../open.ts'

const [, , url, exchangeUrl = '', ttlMs, work, symbol = ''] = process.argv
const pool = new pg.Pool({ connectionString: url, max: 2 })
const lockstep = new Lockstep<DeskEvents, pg.Pool>(pool)
const desk = { pool, lockstep, exchangeUrl, waitMs: 0, processName: `creator of ${symbol}`, say: () => undefined }
const context = openPositionContext(desk, { ttlMs: Number(ttlMs), everyMs: 1000, maxAgeMs: 120_000 })
const market = { symbol, exchange: DEFAULT_EXCHANGE }
if (work === 'close') await closePosition(context, market, 0)
else await openPosition(context, { ...market, side: 'long', quantity: 2 }, 0)
// What it would do next, and must not live to do.
process.send?.('ended')
