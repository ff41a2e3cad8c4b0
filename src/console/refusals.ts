import { refusal } from './responses.ts'

/** What is refused, each with a stable code and what to do. */
export const refuse = {
  closed: () => refusal(503, 'closed', 'Closed', 'This console has been closed.'),
  notFound: () => refusal(404, 'not-found', 'Not found', 'There is nothing under this address.'),
  wrongMethod: (allowed: string) =>
    refusal(405, 'wrong-method', 'Wrong method', `Only ${allowed} is understood here.`, { allow: allowed }),
  notFromHere: () =>
    refusal(
      403,
      'not-from-here',
      'Not from here',
      'Without a token this console answers only on its own machine, under localhost or a loopback address, and not through a proxy. Start it with a token.',
    ),
  crossSite: () =>
    refusal(
      403,
      'from-elsewhere',
      'From elsewhere',
      'Only the console’s own page can send this request, not another site.',
    ),
  csrfWrong: () =>
    refusal(
      403,
      'csrf-wrong',
      'The page is too old',
      'The header x-lockstep-csrf is missing or not of this session. Load the page again.',
    ),
  tokenNeeded: () =>
    refusal(401, 'token-needed', 'A token is needed', 'Log in with the token that this console was started with.', {
      'www-authenticate': 'Bearer',
    }),
  tokenWrong: () => refusal(401, 'token-wrong', 'Wrong token', 'This is not the token of this console.'),
  noToken: () => refusal(409, 'no-token', 'No token', 'This console was started without a token: there is no login.'),
  tooManyTries: () =>
    refusal(
      429,
      'too-many-tries',
      'Too many tries',
      'Too many wrong tokens came from your address. Try again in a moment.',
      {
        'retry-after': '1',
      },
    ),
  tooManyViewers: () =>
    refusal(503, 'too-many-viewers', 'Too many viewers', 'The maximum number of viewers is reached.', {
      'retry-after': '5',
    }),
  operatorsOnly: () =>
    refusal(
      403,
      'operators-only',
      'Read-only',
      'This console is read-only. Start it with --operator, or with the option `operator`.',
    ),
  missing: (name: string) => refusal(400, 'malformed', 'Malformed', `The address has no ${name}, or an invalid one.`),
  noEvent: () => refusal(404, 'no-event', 'No such event', 'It is not retained any more, or there never was one.'),
  busy: () =>
    refusal(503, 'busy', 'Too many searches', 'Other searches are running. Try again in a moment.', {
      'retry-after': '2',
    }),
  noPerson: () =>
    refusal(
      401,
      'not-authenticated',
      'Not logged in',
      'The service that this console is a part of does not know who you are. Log in there, and load the page again.',
    ),
  noHead: () =>
    refusal(404, 'not-parked', 'Not parked', 'This stream does not wait, or none of its events does any more.'),
  noPayload: (why: string) =>
    refusal(404, 'no-payload', 'No payload', `The event has no payload any more: it is ${why}.`),
  payloadTooLarge: (bytes: string) =>
    refusal(
      404,
      'payload-too-large',
      'Too large to show',
      `The payload has ${bytes} bytes. Look at it in the database.`,
    ),
}
