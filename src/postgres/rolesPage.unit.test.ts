import { expect, test } from 'vitest'
import { documentedRoles } from '../../proofs/attacks/intruder/rolesPage.ts'
import { ROLES } from './roles.ts'

test('documents exactly the functions that the command grants to each role', async () => {
  const page = await documentedRoles()
  expect([...page.keys()]).toEqual(Object.keys(ROLES))
  for (const [name, { functions }] of Object.entries(ROLES)) {
    expect([...(page.get(name) ?? [])].toSorted(), name).toEqual([...functions].toSorted())
  }
})
