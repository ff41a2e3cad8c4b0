/**
 * Chance that can be had again: the same seed gives the same numbers. What a run does is chosen by it, who does what and when which
 * fault strikes; what PostgreSQL and the operating system make of it is theirs.
 */
export interface Random {
  /** From 0 up to, not including, 1. */
  next(): number
  /** A whole number from 0 up to, not including, `below`. */
  below(below: number): number
  /** A whole number from `least` to `most`. */
  whole(least: number, most: number): number
  pick<Of>(all: readonly Of[]): Of
  /** In another order. */
  shuffled<Of>(all: readonly Of[]): Of[]
  chance(probability: number): boolean
}

/** A stream of numbers of its own for each list of names, so that one drawing more does not change what the others draw. */
export function random(seed: number, ...names: readonly (string | number)[]): Random {
  let state = hash(`${seed}/${names.join('/')}`)
  const next = (): number => {
    state = (state + 0x6d_2b_79_f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (bound: number): number => Math.floor(next() * bound)
  return {
    next,
    below,
    whole: (least, most) => least + below(most - least + 1),
    pick: (all) => all[below(all.length)] as (typeof all)[number],
    shuffled(all) {
      const left = [...all]
      return all.map(() => left.splice(below(left.length), 1)[0] as (typeof all)[number])
    },
    chance: (probability) => next() < probability,
  }
}

/** A seed for those who did not ask for one; what they print has it. */
export function newSeed(): number {
  return Math.floor(Math.random() * 2 ** 32)
}

/** For what draws by itself, such as a process: what it draws does not depend on when others draw. */
export function newSeedFrom(chance: Random): number {
  return chance.below(2 ** 32)
}

/** FNV-1a. */
function hash(text: string): number {
  let value = 0x81_1c_9d_c5
  for (let index = 0; index < text.length; index++) value = Math.imul(value ^ text.charCodeAt(index), 0x01_00_01_93)
  return value
}
