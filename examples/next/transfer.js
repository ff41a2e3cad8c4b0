/** Works in the transaction that it is given. */
export async function transfer(tx, { id, from, to, amount }) {
  const { rows } = await tx.query('SELECT balance FROM accounts WHERE id = $1', [from])
  const left = rows[0].balance - amount
  if (left < 0) return { id, moved: false }
  await tx.query('UPDATE accounts SET balance = $2 WHERE id = $1', [from, left])
  await tx.query('UPDATE accounts SET balance = balance + $2 WHERE id = $1', [to, amount])
  await tx.query('INSERT INTO transfers (id, amount) VALUES ($1, $2)', [id, amount])
  await tx.enqueue({ topic: 'transfers', key: from, payload: { id } })
  return { id, moved: true }
}
