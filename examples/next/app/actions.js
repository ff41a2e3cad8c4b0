'use server'

import { key } from 'pg-lockstep'
import { lockstep } from '../lockstep.js'
import { transfer } from '../transfer.js'

/** A server action. The form has an id of its own, so that a form that is sent twice moves the money once. */
export async function sendTransfer(form) {
  const [id, from, to] = ['id', 'from', 'to'].map((name) => String(form.get(name)))
  const amount = Number(form.get('amount'))
  const lock = [key`Account:${from}`, key`Account:${to}`]
  await lockstep.transaction({ lock: [key`Transfer:${id}`, ...lock] }, async (tx) => {
    const { rows } = await tx.query('SELECT FROM transfers WHERE id = $1', [id])
    if (rows.length === 0) await transfer(tx, { id, from, to, amount })
  })
}
