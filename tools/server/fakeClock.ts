/** Debian's library that changes what a program reads from the clock. */
export const FAKETIME = '/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1'

/** The environment of a program whose clock is so much ahead of the machine's; behind, where it is negative. Its timers stay as they are. */
export function fakeClock(offsetMs: number): Readonly<Record<string, string>> {
  return {
    LD_PRELOAD: FAKETIME,
    FAKETIME: `${offsetMs < 0 ? '-' : '+'}${Math.abs(offsetMs) / 1000}s`,
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
    DONT_FAKE_MONOTONIC: '1',
  }
}
