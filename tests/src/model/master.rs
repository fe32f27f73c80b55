//! A master: swaps the document, then tells it. What it knows besides is memory that an election loses.

use super::decide::{Case, Known};
use super::message::{Message, ToMaster, ToPserver};
use super::rules::Rule;
use super::words::{Block, Document, Incarnation, Place, Setting, Unit};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The store: one document.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) document: Rc<Document>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Master {
    /// The document as it last swapped it, while it believes to lead.
    pub(crate) leads: Option<Rc<Document>>,
    pub(crate) known: Known,
}

impl Master {
    /// Begins to lead: one swap that raises the master term and the routing version.
    pub(crate) fn elect(&mut self, store: &mut Store) {
        let mut next = Document::clone(&store.document);
        next.version += 1;
        next.master_term += 1;
        store.document = Rc::new(next);
        *self = Master { leads: Some(store.document.clone()), known: Known::default() };
    }

    /// Persists `next`. A master whose document is not the store's any more leads no longer.
    pub(crate) fn swap(&mut self, next: Document, setting: &Setting, store: &mut Store) -> bool {
        let is_newest = self.leads.as_ref().is_some_and(|mine| **mine == *store.document);
        if !is_newest && setting.rules.on(Rule::SwapsCompare) {
            self.leads = None;
            return false;
        }
        store.document = Rc::new(next);
        self.leads = Some(store.document.clone());
        true
    }

    /// Keeps what a pserver says, and what it asks for becomes of the document.
    pub(crate) fn hear(&mut self, message: &ToMaster, setting: &Setting) -> Option<Document> {
        let document = self.leads.clone()?;
        match message {
            ToMaster::Hello(at) => {
                let life = self.known.lives.entry(at.place).or_insert(at.life);
                *life = at.life.max(*life);
            }
            ToMaster::Supplied { number, piece } => {
                self.known.pieces.insert((*number, piece.block), *piece);
            }
            ToMaster::Ledger { block, term, units } => {
                let now = document.blocks[*block].term;
                if *term == now || !setting.rules.on(Rule::LedgerFencedByTerm) {
                    self.known.ledgers.insert(*block, (now, units.clone()));
                }
            }
            _ => {}
        }
        Case { setting, known: &self.known, is_all_published: false }.answer(&document, message)
    }

    /// What a pserver is told: the document as this master has it, newest or not.
    pub(crate) fn slice(&self, place: Place) -> Option<Message> {
        let (document, life) = (self.leads.clone()?, *self.known.lives.get(&place)?);
        let to = Incarnation { place, life };
        Some(Message::Pserver(place, ToPserver::Slice { to, document }))
    }

    /// Async: what is known to be applied, by an answer of the present term.
    pub(crate) fn ledger(&self, block: Block) -> Option<&BTreeSet<Unit>> {
        let term = self.leads.as_ref()?.blocks[block].term;
        self.known.ledgers.get(&block).filter(|(told, _)| *told == term).map(|(_, units)| units)
    }

    /// Async: asks a block's primary for its ledger, until that is full.
    pub(crate) fn ask_ledger(&self, block: Block, setting: &Setting) -> Option<Message> {
        let document = self.leads.as_ref()?;
        let is_full = self.ledger(block).is_some_and(|units| units.len() == setting.shape.units);
        let place: Place = document.blocks[block].primary.place;
        (!is_full).then_some(Message::Pserver(place, ToPserver::AskLedger { block }))
    }
}
