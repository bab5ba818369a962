// Dialogs that are loaded when they are needed.
import { lazy, open } from './ui.js';
import { hidesPayloads, may } from './who.js';

export const Bulk = lazy(() => import('./views/bulk.js').then((m) => m.Bulk));
const Send = lazy(() => import('./views/send.js').then((m) => m.Send));

// sendMessage asks for a message and sends it. With a queue it is sent there, and with a message it begins as that one.
export const sendMessage = (properties = {}) => may('send') && open(Send, properties);

// canDuplicate reports whether a message can be sent again by whoever looks: they see its payload, and it can be read.
export const canDuplicate = (m) => may('send') && !hidesPayloads() && m.raw_base64 === undefined;
