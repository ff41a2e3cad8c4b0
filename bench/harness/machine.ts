import { cpus, loadavg, release, totalmem } from 'node:os'
import { describeMachine } from '../../tools/judge/report.ts'
import { peerVersions } from './peers.ts'

/** What figures mean nothing without. */
export interface Machine {
  readonly text: string
  readonly processor: string
  readonly cores: number
  readonly memoryGiB: number
  readonly system: string
  readonly node: string
  /** Before anything was begun: a machine that has other things to do gives other figures. */
  readonly loadBefore: number
  readonly peers: Readonly<Record<string, string>>
}

export function machineFacts(): Machine {
  const cores = cpus()
  return {
    text: describeMachine(),
    processor: (cores[0]?.model ?? 'unknown').replaceAll(/\s+/g, ' ').trim(),
    cores: cores.length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    // Without what a distribution adds to the number.
    system: `${process.platform} ${process.arch} ${release().split('-')[0]}`,
    node: process.versions.node,
    loadBefore: Number((loadavg()[0] ?? 0).toFixed(2)),
    peers: peerVersions(),
  }
}
