import { DispatcherRemovedError, OutboxRebaseNeededError } from '../errors.ts'

/** The error for cursors that say nothing here. */
export function cursorsOfAnotherServer(dispatcher: string): OutboxRebaseNeededError {
  return refused(
    `The cursors of the dispatcher ${dispatcher} were made on another server or database: this is a restored dump or a copy.`,
  )
}

/** The error for cursors that know more than the server does. */
export function cursorsAheadOfServer(dispatcher: string): OutboxRebaseNeededError {
  return refused(`The cursors of the dispatcher ${dispatcher} are of a later history than this server's.`)
}

/** The error for a process whose dispatcher is not registered any more, such as one that was stopped while an operator removed it. */
export function dispatcherRemoved(dispatcher: string): DispatcherRemovedError {
  return new DispatcherRemovedError(
    `The dispatcher ${dispatcher} is not registered any more: it was removed while this process was stopped or cut off.`,
    {
      advice:
        'Nothing more was sent from here. If it is still wanted, start it again: it is registered as a new one and begins with the oldest event.',
    },
  )
}

function refused(message: string): OutboxRebaseNeededError {
  return new OutboxRebaseNeededError(message, {
    advice: 'Run `npx pg-lockstep outbox rebase` and choose what is delivered; nothing was sent from here.',
  })
}
