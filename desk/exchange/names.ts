/** The simulated exchanges. Each has its own orders and positions; one server answers for all, each under its name. */
export const EXCHANGES = ['north', 'south'] as const

export type ExchangeName = (typeof EXCHANGES)[number]

/** Whose a request is that names none. */
export const DEFAULT_EXCHANGE: ExchangeName = 'north'
