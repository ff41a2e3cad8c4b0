import { page, text } from '../http/page.ts'

/** An event as it arrived. */
export interface PublishedEvent {
  readonly place: number
  readonly seq: number
  readonly at: Date
  readonly trade: string | null
  readonly symbol: string | null
  readonly side: string | null
  readonly quantity: number | null
  readonly price: number | null
}

export interface PortfolioRow {
  readonly portfolio: string
  readonly trades: number
  readonly published: number
}

/** The log of one portfolio, for people: the newest event first, with a word on what is out of order. */
export function publishedPage(portfolio: string, events: readonly PublishedEvent[]): string {
  const wrong = events.filter(({ seq }, index) => index > 0 && seq !== (events[index - 1]?.seq ?? 0) + 1)
  const rows = events.toReversed().map(({ seq, place, at, trade, symbol, side, quantity, price }) => {
    const traded = trade === null ? 'given up' : `${side} ${quantity} ${text(symbol ?? '')} at ${price}`
    return `<tr><td>#${seq}</td><td>${traded}</td><td>${text(trade ?? '')}</td><td>${place}</td><td><time>${at.toISOString()}</time></td></tr>`
  })
  const order =
    wrong.length === 0
      ? `<p>${events.length} events, each one behind the one before.</p>`
      : `<p><b>Out of order:</b> ${wrong.map(({ seq }) => `#${seq}`).join(', ')}</p>`
  return page(
    `The log of ${portfolio}`,
    `<h1>The published log of ${text(portfolio)}</h1>${order}
<table><thead><tr><th>number</th><th>trade</th><th>id</th><th>place of all</th><th>arrived</th></tr></thead><tbody>${rows.join('')}</tbody></table>
<p><a href="/portfolios">Portfolios</a></p>`,
  )
}

export function portfoliosPage(portfolios: readonly PortfolioRow[]): string {
  const rows = portfolios.map(
    ({ portfolio, trades, published }) =>
      `<tr><td><a href="/portfolios/${encodeURIComponent(portfolio)}/log">${text(portfolio)}</a></td><td>${trades}</td><td>${published}</td></tr>`,
  )
  return page(
    'Portfolios',
    `<h1>Portfolios</h1>
<table><thead><tr><th>published log of</th><th>trades</th><th>published</th></tr></thead><tbody>${rows.join('')}</tbody></table>
<p><a href="/">The desk</a></p>`,
  )
}
