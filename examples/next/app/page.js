import { randomUUID } from 'node:crypto'
import { sendTransfer } from './actions.js'

export const dynamic = 'force-dynamic'

export default function Page() {
  return (
    <form action={sendTransfer}>
      <input type="hidden" name="id" value={randomUUID()} readOnly />
      <input name="from" defaultValue="a" />
      <input name="to" defaultValue="b" />
      <input name="amount" type="number" defaultValue="1" />
      <button>Transfer</button>
    </form>
  )
}
