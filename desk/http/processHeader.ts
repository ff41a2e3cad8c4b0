/** Which process of the desk has answered: its id. */
export const PROCESS_HEADER = 'x-desk-process'
