/** What the cards call things. */
export const PORTFOLIOS = ['Portfolio A', 'Portfolio B', 'Portfolio C', 'Portfolio D']
export const ACCOUNTS = ['Anna', 'Ben', 'Cleo', 'Dan']
/** Of each kind. */
export const INSTANCES = 6
