// What every script has: its scenario, what it was given, and lines of JSON for the test that runs it.
const [, , scenario, given] = process.argv;

export const { address, key, ...options } = JSON.parse(given);

export const say = (told) => process.stdout.write(JSON.stringify(told) + "\n");

export async function play(scenarios) {
  await scenarios[scenario]();
  process.exit(0);
}

export async function all(stream) {
  const found = [];
  for await (const one of stream) found.push(one);
  return found;
}
