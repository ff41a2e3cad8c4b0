const Real = Date
let shiftMs = 0

/** From now on this process's clock is wrong by so much. The machine's own is not touched. */
export function setClock(ms: number): void {
  shiftMs = ms
  globalThis.Date = Shifted as unknown as DateConstructor
}

class Shifted extends Real {
  constructor(...given: []) {
    if (given.length === 0) super(Real.now() + shiftMs)
    else super(...given)
  }

  static override now(): number {
    return Real.now() + shiftMs
  }
}
