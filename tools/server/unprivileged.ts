import { spawnSync } from 'node:child_process'
import { chown, lchown, readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'

/** How to run a server that refuses to run as root, and who has to own its files. */
export interface Unprivileged {
  readonly command: (file: string, args: readonly string[]) => [file: string, args: string[]]
  readonly spawnOptions: { readonly uid?: number; readonly gid?: number; readonly cwd: '/' }
  readonly owner: { readonly uid: number; readonly gid: number } | undefined
}

/**
 * Chooses how to give up root. `paths` are the directories and programs the server has to reach: a checkout below a
 * private home cannot be entered by `postgres` or `nobody`, and then a user namespace in which root is called `nobody`
 * keeps root's access to files and still passes PostgreSQL's test for root.
 */
export async function unprivileged(paths: readonly string[]): Promise<Unprivileged> {
  if (process.getuid?.() !== 0) {
    return { command: (file, args) => [file, [...args]], spawnOptions: { cwd: '/' }, owner: undefined }
  }
  const user = await serverUser()
  if (canReach(user, paths)) {
    return { command: (file, args) => [file, [...args]], spawnOptions: { ...user, cwd: '/' }, owner: user }
  }
  const namespace = ['--user', '--map-user=65534', '--map-group=65534', '--']
  if (spawnSync('unshare', [...namespace, 'true']).status === 0) {
    return {
      // unshare replaces itself with the program, so the process id we get is still the server's own.
      command: (file, args) => ['unshare', [...namespace, file, ...args]],
      spawnOptions: { cwd: '/' },
      owner: { uid: 0, gid: 0 },
    }
  }
  throw new Error(
    `running as root: uid ${user.uid} cannot reach ${paths.join(', ')} and unshare(1) is not permitted; ` +
      'run as another user or move the project where others may enter',
  )
}

async function serverUser(): Promise<{ uid: number; gid: number }> {
  const passwd = await readFile('/etc/passwd', 'utf8').catch(() => '')
  for (const name of ['postgres', 'nobody']) {
    const fields = passwd
      .split('\n')
      .find((line) => line.startsWith(`${name}:`))
      ?.split(':')
    if (fields !== undefined) return { uid: Number(fields[2]), gid: Number(fields[3]) }
  }
  return { uid: 65534, gid: 65534 }
}

/** Asked of the system itself: mode bits alone would not know of access control lists and read-only mounts. */
function canReach(user: { uid: number; gid: number }, paths: readonly string[]): boolean {
  const script = 'for path do test -x "$path" || exit 1; done'
  return spawnSync('/bin/sh', ['-c', script, 'sh', ...paths], { ...user, cwd: '/' }).status === 0
}

/** Hands a tree to the server's user, at no cost when it is theirs already. */
export async function giveTo(owner: Unprivileged['owner'], path: string): Promise<void> {
  if (owner === undefined) return
  const { uid } = await stat(path)
  if (uid === owner.uid) return
  for (const entry of await readdir(path, { recursive: true })) {
    await lchown(join(path, entry), owner.uid, owner.gid)
  }
  // Last, so that an interrupted hand-over is done again.
  await chown(path, owner.uid, owner.gid)
}
