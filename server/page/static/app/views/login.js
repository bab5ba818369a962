// Asking for a token.
import { request } from '../api.js';
import { html, useState } from '../html.js';
import { reconnect } from '../live.js';
import { Failure, Field } from '../ui.js';
import { known, loadServer } from '../who.js';

// Login asks for a token until the server accepts one, and calls done.
export function Login({ done }) {
  const [state, setState] = useState({});
  const submit = async (event) => {
    event.preventDefault();
    setState({ busy: true });
    try {
      await request('POST', 'v1/login', { token: new FormData(event.target).get('token').trim() });
      const before = known()?.who;
      const { who } = await loadServer();
      if (before !== undefined && who !== before) {
        location.reload(); // another person must not see the data of this one
        return;
      }
      reconnect();
      done();
    } catch (error) {
      setState({ error });
    }
  };
  return html`<form class="card" onSubmit=${submit}>
    <h1>Log in</h1>
    <p>This server wants to know who you are. Paste a token; an administrator makes one with
      ${' '}<code>later token new</code>.</p>
    <${Field} label="Token" name="token" type="password" required autofocus autocomplete="current-password" />
    <${Failure} error=${state.error} />
    <div class="buttons"><button class="primary" disabled=${state.busy}>Log in</button></div>
  </form>`;
}

// logout forgets the token.
export async function logout() {
  await request('POST', 'v1/logout', {});
  location.reload();
}
