/** Microseconds of the machine's monotonic clock: all its processes share it, and it cannot be set. */
export function machineMicros(): number {
  return Number(process.hrtime.bigint() / 1000n)
}

/** The same in milliseconds, with their fractions. */
export function machineMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}
