import { OutboxRebaseNeeded } from '../errors.ts'

/** The error for cursors that say nothing here. */
export function madeElsewhere(dispatcher: string): OutboxRebaseNeeded {
  return refused(
    `The cursors of the dispatcher ${dispatcher} were made on another server or database: this is a restored dump or a copy.`,
  )
}

/** The error for cursors that know more than the server does. */
export function madeLater(dispatcher: string): OutboxRebaseNeeded {
  return refused(`The cursors of the dispatcher ${dispatcher} are of a later history than this server's.`)
}

function refused(message: string): OutboxRebaseNeeded {
  return new OutboxRebaseNeeded(message, {
    advice: 'Run `npx pg-lockstep outbox rebase` and choose what is delivered; nothing was sent from here.',
  })
}
