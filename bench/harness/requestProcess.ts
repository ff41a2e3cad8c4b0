import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'

/** A process that runs one of our files and answers what it is asked, one question at a time. */
export interface RequestProcess {
  ask<Answer>(question: object): Promise<Answer>
  /** Ends it, and waits until it is gone. */
  end(): Promise<void>
}

interface Answered {
  readonly answer?: unknown
  readonly failed?: string
}

const LIFELINE = new URL('../../proofs/faults/lifeline.ts', import.meta.url)
const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Starts it on that Node, and waits until it says that it is ready. It dies with us: its standard input is our pipe. */
export async function startRequestProcess(node: string, file: URL, args: readonly string[]): Promise<RequestProcess> {
  const lifeline = nodeArguments(LIFELINE)
  const program = nodeArguments(file)
  const loader = program.slice(0, -1)
  const child = spawn(node, [...loader, '--import', lifeline.at(-1)!, program.at(-1)!, ...args], {
    cwd: ROOT,
    stdio: ['pipe', 'ignore', 'inherit', 'ipc'],
  })
  const ended = once(child, 'exit')
  const next = async <Answer>(): Promise<Answer> => {
    const message = once(child, 'message') as Promise<[Answered]>
    const [{ answer, failed }] = await Promise.race([
      message,
      ended.then(() => Promise.reject(new Error(`The process ${args.join(' ')} has ended.`))),
    ])
    if (failed !== undefined) throw new Error(`${args.join(' ')}: ${failed}`)
    return answer as Answer
  }
  await next()
  return {
    ask(question) {
      const answer = next()
      child.send(question)
      return answer as Promise<never>
    },
    async end() {
      child.kill('SIGKILL')
      await ended
    },
  }
}
