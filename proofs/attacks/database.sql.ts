export const createDatabase = (name: string): string => `CREATE DATABASE ${name} TEMPLATE template0`
