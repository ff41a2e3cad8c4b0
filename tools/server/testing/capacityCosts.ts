/** Costs of no real machine, for tests of `pg-lockstep capacity`. */
export const CAPACITY_COSTS = {
  date: '2026-11-18',
  machine: 'a machine',
  postgres: '18.4',
  command: 'by hand',
  payloadBytes: 100,
  event: { cpuUs: 200, walBytes: 600, diskBytes: 300 },
  payloadByte: { cpuUs: 0.02, walBytes: 1, diskBytes: 2, readCpuUs: 0.01 },
  delivery: { cpuUs: 5, walBytes: 1 },
  look: { cpuUs: 100, walBytes: 50, waitMs: 1 },
  process: { cpuUsPerS: 1000, walBytesPerS: 10 },
  memberCpuUs: 0.5,
  lease: { cpuUs: 400, walBytes: 700 },
  transaction: { cpuUs: 150, walBytes: 250 },
  clientMs: 0.5,
  flushMs: 0.4,
  readPerS: 200_000,
}
