/** An import in a process of its own, to be killed. It sends a message after each step, and its outcome. Arguments: url, table, topic. */
import { openClient } from '../client.ts'

const [url, table, topic] = process.argv.slice(2) as [string, string, string]
const { lockstep } = openClient('pg', url, { application: 'import' })

try {
  const imported = await lockstep.outbox.import(table, {
    topic,
    key: '{aggregate}',
    order: 'id',
    sent: 'sent_at',
    waitMs: 60_000,
    reason: 'an attack',
    onProgress: (progress) => process.send?.({ progress }),
  })
  process.send?.({ imported })
} catch (error) {
  process.send?.({ failed: String(error) })
}
