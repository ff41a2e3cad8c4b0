import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { deployFolder, manifest } from './manifests.ts'

/** What promtool finds wrong with the configuration, beside the rules as a container has them. Undefined: nothing. */
export function prometheusFault(promtool: string): string | undefined {
  const directory = mkdtempSync(join(tmpdir(), 'lockstep-prometheus-'))
  try {
    const token = join(directory, 'desk-token')
    writeFileSync(token, 'token')
    const text = manifest('prometheus/prometheus.yml').replace('/run/secrets/desk-token', token)
    writeFileSync(join(directory, 'prometheus.yml'), text)
    copyFileSync(join(deployFolder, '../docs/operating/alerts.yml'), join(directory, 'alerts.yml'))
    const args = ['check', 'config', join(directory, 'prometheus.yml')]
    const { status, stdout, stderr } = spawnSync(promtool, args, { encoding: 'utf8' })
    return status === 0 ? undefined : stdout + stderr
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}
