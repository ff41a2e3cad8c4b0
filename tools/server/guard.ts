import { spawn } from 'node:child_process'

/**
 * Stops a server whose parent was killed. No handler runs in a process that gets SIGKILL, but the kernel closes its
 * pipes: the guard is a shell in a session of its own that reads the parent's orders until end of file, and then ends
 * the process and removes the directory that it last received. It needs no Node, so it costs 1 ms and 1 MB.
 *
 * INT is a fast shutdown to PostgreSQL; QUIT, an immediate one, kills frozen backends after 5 s; CONT is for a process
 * that a fault test has left stopped.
 */
const script = `
trap '' HUP INT TERM
pid= directory=
# A zombie still takes signals. If no process reaps it, as in a container without an init, waiting for it never ends.
alive() {
  kill -s 0 "$pid" || return 1
  stat=
  [ ! -r "/proc/$pid/stat" ] || read -r stat <"/proc/$pid/stat"
  case \${stat##*) } in Z*) return 1 ;; esac
}
while read -r order value; do
  case $order in
    watch) pid=$value ;;
    forget) pid= ;;
    remove) directory=$value ;;
    keep) directory= ;;
  esac
done
if [ -n "$pid" ]; then
  for step in INT:15 QUIT:70 KILL:20; do
    alive || break
    kill -s "\${step%:*}" "$pid"
    kill -s CONT "$pid"
    tenths=0
    while [ "$tenths" -lt "\${step#*:}" ] && alive; do
      sleep 0.1
      tenths=$((tenths + 1))
    done
  done
fi
if [ -n "$directory" ]; then
  for attempt in 1 2 3 4 5; do
    rm -rf -- "$directory" && break
    sleep 0.2
  done
fi
`

export interface Guard {
  /** End this process, instead of the one named before, should we die. */
  watch(pid: number): void
  /** The process named before has ended: its id may soon be someone else's. */
  forget(): void
  /** Remove this directory should we die. */
  removeAfterwards(directory: string): void
  keepFiles(): void
  /** Ends the guard; the process and the directory are left as they are. */
  dismiss(): void
}

export function startGuard(): Guard {
  // Detached: what kills our process group, such as Ctrl-C, must not take the guard along.
  const shell = spawn('/bin/sh', ['-c', script, 'lockstep-guard'], {
    detached: true,
    cwd: '/',
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  const { stdin } = shell
  // A guard that was itself killed shows as EPIPE here; that is no reason to take the server down.
  stdin.on('error', () => {})
  shell.on('error', () => {})
  shell.unref()
  // A child's pipe is a socket underneath, and only a socket can be set not to keep the program running.
  if ('unref' in stdin && typeof stdin.unref === 'function') stdin.unref()
  return {
    watch: (pid) => void stdin.write(`watch ${pid}\n`),
    forget: () => void stdin.write('forget\n'),
    removeAfterwards: (directory) => void stdin.write(`remove ${directory}\n`),
    keepFiles: () => void stdin.write('keep\n'),
    dismiss: () => void stdin.end('forget\nkeep\n'),
  }
}
