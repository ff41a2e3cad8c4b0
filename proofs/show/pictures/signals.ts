import type { PictureSource } from './picture.ts'

const SHOWN = 24

/** The newest signals, and how many different positions there are for each: at the exchange, or in the books. */
export function signals(): PictureSource {
  const orders = new Map<string, Set<string>>()
  const add = (key: string, order: string): void => {
    let known = orders.get(key)
    if (known === undefined) orders.set(key, (known = new Set()))
    known.add(order)
  }
  return {
    see({ what, key, value, by }) {
      // A naive caller that writes has opened one more. What the exchange took counts by its order id, however often it was sent.
      if (what === 'took' || (what === 'wrote' && by !== 'outside' && value !== undefined)) add(key, String(value))
      if (orders.size > 2 * SHOWN) for (const old of [...orders.keys()].slice(0, SHOWN)) orders.delete(old)
    },
    picture: () => ({
      kind: 'signals',
      signals: [...orders]
        .map(([key, all]) => ({ number: Number(key.split('.').at(-1)), orders: all.size }))
        .toSorted((one, other) => one.number - other.number)
        .slice(-SHOWN)
        .map(({ number, orders: count }) => ({ name: `#${number}`, orders: count })),
    }),
  }
}
